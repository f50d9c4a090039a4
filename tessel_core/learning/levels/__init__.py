"""One file a level: plan or knob, task, hints and the sentences of why."""
