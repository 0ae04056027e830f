"""Room on a bookie's disks: what is measured, what is kept in reserve, what follows from it."""
