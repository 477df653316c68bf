"""Holds documents to their schemas.

    regatta schema --all SCHEMAS
    python tests/formats/validate.py SCHEMAS NAME=FILE...

NAME is a schema's. Of a file whose name ends in `.jsonl` or `.trace` every line is held to it, of
`.json` and `.toml` the whole. Prints what does not fit, and ends with 1 if anything does not.
"""

import itertools
import json
import os
import sys

import jsonschema
import tomllib

MOST = 20


def documents(path):
    """The documents of a file, each with where it stands."""
    if path.endswith((".jsonl", ".trace")):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield f"{path}:{number}", json.loads(line)
    elif path.endswith(".toml"):
        with open(path, "rb") as file:
            yield path, tomllib.load(file)
    else:
        with open(path, encoding="utf-8") as file:
            yield path, json.load(file)


def telling(error):
    """The error that says most: of a choice that nothing fits, one of the branch whose tag fits."""
    while error.context:
        branches = {}
        for inner in error.context:
            branches.setdefault(inner.schema_path[0], []).append(inner)
        tagged = [
            b for b in branches.values() if all(e.validator != "const" for e in b)
        ]
        error = min(tagged or branches.values(), key=len)[0]
    return error


def main(schemas, pairs):
    validators = {}
    for name in {pair.partition("=")[0] for pair in pairs}:
        with open(os.path.join(schemas, f"{name}.json"), encoding="utf-8") as file:
            schema = json.load(file)
        jsonschema.Draft202012Validator.check_schema(schema)
        validators[name] = jsonschema.Draft202012Validator(schema)
    faults = count = 0
    for pair in pairs:
        name, _, path = pair.partition("=")
        for place, document in documents(path):
            count += 1
            for error in itertools.islice(validators[name].iter_errors(document), 3):
                faults += 1
                inner = telling(error)
                where = "/".join(str(part) for part in inner.absolute_path)
                if faults <= MOST:
                    print(f"{place}: not {name}: {where}: {inner.message[:300]}")
    print(f"{count} documents of {len(validators)} schemas, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
