"""Write-ahead log of a bookie."""
