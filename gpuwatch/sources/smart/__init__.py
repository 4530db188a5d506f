"""SMART: one smartctl call a disk, judged by its JSON and parsed by pySMART as well. pySMART's home.

`sources/program.py` calls smartctl, `document` reads its JSON, `pysmart` its text lines, both give `Facts`; `facts` merges them,
`wear` says what vendors mean by their attributes, `verdict` judges, `numbers` gives the metrics, `source` walks the disks.
The sources of odd facts here are smartctl's and pySMART's own code and captures of real drives.
"""

from gpuwatch.sources.smart.source import source

__all__ = ["source"]
