"""What tests share: an independent simulator, slow oracles that know no solver, random plans, and readers of
exported files."""
