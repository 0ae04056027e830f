"""Auto recovery: restores the write quorum after bookies are lost.

    auditing/    election: chooses the auditor among the processes. auditor: finds and marks ledgers that lack copies
    marks/       the marks on ledgers that lack copies, and the locks of the workers that repair them, in the metadata
    copying/     worker: takes a marked ledger, copies what is missing, and unmarks it

Nothing here owns data. Every decision is based on the metadata and is made again by the next auditor or worker, so two
auditors at once, or one that dies halfway, do no harm.
"""
