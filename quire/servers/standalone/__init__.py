"""`quire standalone`: broker, bookie and metadata as one process."""
