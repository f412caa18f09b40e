"""Validates manifests: FILE... against the schemas of Kubernetes and of the custom resources in --crd DIR...

Unknown members are errors, as in strict API servers.
"""
import argparse
import json
import pathlib

import jsonschema
import kubernetes_validate
import yaml


def strict(schema):
    """Makes every member that the schema does not list an error."""
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" not in schema and not schema.get(
                "x-kubernetes-preserve-unknown-fields"):
            schema["additionalProperties"] = False
        for each in schema.values():
            strict(each)
    elif isinstance(schema, list):
        for each in schema:
            strict(each)
    return schema


# In YAML 1.1 an equals sign is a separate type; in these files it is a string.
yaml.SafeLoader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: node.value)


def definitions(folders, kinds):
    """Returns the schemas of custom resources by group, version and kind, from files in the folders."""
    found = {}
    for folder in folders:
        for path in pathlib.Path(folder).glob("*.yaml"):
            if not any(f"_{kind.lower()}s." in path.name for kind in kinds):
                continue
            for crd in yaml.safe_load_all(path.read_text()):
                if not crd or crd.get("kind") != "CustomResourceDefinition":
                    continue
                spec = crd["spec"]
                for version in spec["versions"]:
                    schema = strict(version["schema"]["openAPIV3Schema"])
                    schema["properties"]["metadata"] = {"type": "object"}
                    found[f"{spec['group']}/{version['name']} {spec['names']['kind']}"] = schema
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--crd", action="append", default=[])
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    objects = [(name, doc) for name in args.files for doc in yaml.safe_load_all(pathlib.Path(name).read_text())]
    custom = definitions(args.crd, {doc["kind"] for _, doc in objects})
    counts = {"built in": 0, "custom": 0}
    for name, doc in objects:
        what = f"{doc['apiVersion']} {doc['kind']}"
        try:
            if what in custom:
                jsonschema.validate(doc, custom[what])
                counts["custom"] += 1
            else:
                kubernetes_validate.validate(doc, "1.37", strict=True)
                counts["built in"] += 1
        except Exception as e:  # the two libraries have different exceptions
            raise SystemExit(f"{name}: {what} {doc['metadata']['name']}: {e}")
    print(json.dumps(counts))


main()
