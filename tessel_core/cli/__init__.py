"""The same verbs from a terminal, a file a verb."""


def main() -> None:
    """Run the verb that the arguments name; an interrupt while its code is still loading ends it quietly too."""
    try:
        from tessel_core.cli.command import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
