"""Where each subscription stands; itself kept in ledgers."""
