import base64
import hashlib
import hmac
import time


def verify(secret: str, headers, body: bytes) -> bool:
    """Whether a request was signed with the secret in the last five minutes."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(timestamp)) > 300:
        return False
    content = f"{id}.{timestamp}.".encode() + body
    want = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(want, given) for given in headers["webhook-signature"].split())
