"""`quire shell`: the operator's commands on a cluster, and on the files of a bookie.

    main        the words of the command line -> command, arguments, exit code
    arguments   options as commons-cli reads them: -l, -ledgerid, --ledgerid
    config      the keys of a bk_server.conf that the commands need
    context     what a command is given: configuration, metadata store, ledger client, output, answers
    output      plain lines, or JSON lines; progress
    the rest    one module per kind of command

Source of names, options, formats and exit codes: BookKeeper 4.17.3's BookieShell, as run; where this shell differs on
purpose stands in docs/shell.md.
"""
