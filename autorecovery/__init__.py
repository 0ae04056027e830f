"""Auto recovery: restores the write quorum after bookies are lost.

    auditing/    election: which of the processes is the auditor. auditor: finds ledgers that lack copies, and marks them
    marks/       the marks on ledgers that lack copies, and the locks of those who repair them, in the metadata
    copying/     worker: takes a marked ledger, copies what is missing, and unmarks it

Nothing here owns data: every decision is read from the metadata and made again by whoever comes next, so two auditors at
once, or one that dies in the middle, do no harm.
"""
