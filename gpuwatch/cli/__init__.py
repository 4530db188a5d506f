"""The commands, one file each; a command imports its room only when it is chosen."""


def main() -> int:
    """Run the command line."""
    return 0
