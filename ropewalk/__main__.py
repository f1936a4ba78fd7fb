"""`python -m ropewalk`."""

from ropewalk.cli import main

if __name__ == "__main__":
    main()
