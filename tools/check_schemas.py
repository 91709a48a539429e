"""Hold the files that other services read against their schemas, which need no network.

python tools/check_schemas.py
"""

import sys
from pathlib import Path

import check_jsonschema

PROJECT = Path(__file__).resolve().parents[1]

SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.readthedocs": ".readthedocs.yaml",
    "vendor.citation-file-format": "CITATION.cff",
}
"""Files of each schema."""


def main() -> int:
    """Return the number of schemas that some file does not follow."""
    failed = 0
    for schema, pattern in SCHEMAS.items():
        files = [str(path) for path in sorted(PROJECT.glob(pattern))]
        kind = ["--default-filetype", "yaml"]
        arguments = ["--builtin-schema", schema, *kind, *files]
        failed += bool(check_jsonschema.main(arguments, standalone_mode=False))
    return failed


if __name__ == "__main__":
    sys.exit(main() > 0)
