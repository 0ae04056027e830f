"""Room on a bookie's disks: measuring it, keeping a reserve, and refusing adds when it runs out."""
