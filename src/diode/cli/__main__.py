from diode.cli import main

main()
