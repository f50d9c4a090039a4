"""Plans and schedules changed by hand: a block moved, stretched, split, cut or merged, and what that breaks."""
