"""`python -m gpuwatch` is the command `gpuwatch`."""

from gpuwatch.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
