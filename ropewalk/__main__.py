from ropewalk.cli import main

main()
