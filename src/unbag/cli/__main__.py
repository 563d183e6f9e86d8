"""``python -m unbag.cli``, the same as ``unbag``."""

from unbag.cli import app

if __name__ == "__main__":
    app(prog_name="unbag")
