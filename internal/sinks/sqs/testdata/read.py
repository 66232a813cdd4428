import base64
import json


def read(message) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a message, as they were scheduled."""
    attributes = message["MessageAttributes"]
    headers = json.loads(attributes["delay-headers"]["StringValue"])
    encoding = attributes.get("delay-encoding", {}).get("StringValue")
    if encoding == "empty":
        return headers, b""
    if encoding == "base64":
        return headers, base64.b64decode(message["Body"])
    return headers, message["Body"].encode()
