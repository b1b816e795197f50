#!/usr/bin/env python3
"""A shop in plain Python 3, on a client that is made of the service's own document; no packages.

    python3 shop.py http://127.0.0.1:8080 [TOKEN]

Client reads /openapi.json and has a method for each operation: claim, get_stock, redeem_claim, … Path, query and header parameters
are arguments of their names (Idempotency-Key is idempotency_key), the body is `body`. An answer is (status, value). One that is not in the document,
or does not fit its schema, is an error.
"""
import json, re, sys, time, urllib.error, urllib.parse, urllib.request

TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict, "null": type(None)}


class Client:
    def __init__(self, url, token=None, timeout=10):
        self.url, self.token, self.timeout = url.rstrip("/"), token, timeout
        self.document = json.loads(self.send("GET", "/openapi.json", {}, None)[1])
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                if method in ("get", "post", "patch", "put", "delete"):
                    setattr(self, python_name(operation["operationId"]), self.method(path, method.upper(), operation))

    def method(self, path, verb, operation):
        parameters = {python_name(p["name"]): p for p in map(self.resolve, operation.get("parameters", []))}

        def call(body=None, **arguments):
            at, query, headers = path, {}, {}
            for name, value in arguments.items():
                p = parameters[name]  # KeyError: the operation has no such parameter
                if p["in"] == "path":
                    at = at.replace("{" + p["name"] + "}", urllib.parse.quote(str(value), safe=""))
                else:
                    (query if p["in"] == "query" else headers)[p["name"]] = str(value)
            if query:
                at += "?" + urllib.parse.urlencode(query)
            status, text, kind = self.send(verb, at, headers, body)
            answer = self.resolve(operation["responses"][str(status)])  # KeyError: not in the document
            value = json.loads(text) if "json" in kind else text.decode()
            if "json" in kind:
                self.check(answer["content"][kind]["schema"], value, operation["operationId"])
            return status, value

        return call

    def send(self, verb, path, headers, body):
        request = urllib.request.Request(self.url + path, method=verb, headers=headers)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as res:
                return res.status, res.read(), res.headers.get_content_type()
        except urllib.error.HTTPError as res:
            return res.code, res.read(), res.headers.get_content_type()

    def resolve(self, part):
        while "$ref" in part:
            found = self.document
            for step in part["$ref"].lstrip("#/").split("/"):
                found = found[step]
            part = found
        return part

    def check(self, schema, value, where):
        """Hold a value to as much of its schema as this service's document uses."""
        schema = self.resolve(schema)
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if kinds and not any(isinstance(value, TYPES[k]) and not (isinstance(value, bool) and k != "boolean") for k in kinds):
            raise ValueError(f"{where}: {value!r} is no {' or '.join(kinds)}")
        if value is not None and "enum" in schema and value not in schema["enum"]:
            raise ValueError(f"{where}: {value!r} is none of {schema['enum']}")
        if isinstance(value, dict):
            for name in schema.get("required", []):
                if name not in value:
                    raise ValueError(f"{where}: no {name}")
            for name, below in schema.get("properties", {}).items():
                if name in value:
                    self.check(below, value[name], f"{where}.{name}")
        if isinstance(value, list):
            for one in value:
                self.check(schema.get("items", {}), one, where + "[]")


def python_name(name):
    return re.sub(r"\W", "_", name).lower()


def claim(dibs, campaign, user, key):
    """Take a unit. Sold out is an answer, not an error; what may pass is asked again, with the same key."""
    while True:
        status, answer = dibs.claim(id=campaign, idempotency_key=key, body={"user_id": user})
        if status != 503:
            return answer
        time.sleep(answer.get("retry_after_ms", 1000) / 1000)


def main():
    dibs = Client(sys.argv[1], *sys.argv[2:3])
    dibs.create_campaign(body={"id": "shop-py", "kind": "coupon", "total": 2, "per_user": 1})
    first = claim(dibs, "shop-py", "ada", "order-1")
    print("same claim:", claim(dibs, "shop-py", "ada", "order-1")["id"] == first["id"])
    print("over the limit:", claim(dibs, "shop-py", "ada", "order-2")["code"])
    _, batch = dibs.claim_batch(body={"claims": [{"campaign_id": "shop-py", "user_id": u} for u in ("bob", "eve")]})
    print("batch:", *(r["claim"]["status"] if "claim" in r else r["problem"]["code"] for r in batch["results"]))
    print("redeemed:", dibs.redeem_claim(id=first["id"], body={"order_id": "4711"})[1]["status"])
    print("left:", dibs.get_stock(id="shop-py")[1]["remaining"])
    print("missing:", dibs.get_campaign(id="winter")[1]["code"])


if __name__ == "__main__":
    main()
