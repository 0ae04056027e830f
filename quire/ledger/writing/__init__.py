"""Writers of a ledger: quorums, order, deadlines, changes of the ensemble."""
