"""What a notebook shows of a stream of text."""


def notebook_rows(text: str) -> list[str]:
    """The rows that JupyterLab shows: what follows a carriage return overwrites the row; nothing else moves."""
    rows = []
    for row in text.split("\n"):
        shown = ""
        for piece in row.split("\r"):
            shown = piece + shown[len(piece) :]
        rows.append(shown.rstrip())
    return rows
