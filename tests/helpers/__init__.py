"""What tests share: an independent simulator, slow oracles that know no solver, and random plans."""
