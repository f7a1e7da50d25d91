"""What the executors call."""


def nothing(_: int) -> None:
    pass
