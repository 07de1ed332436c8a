"""Keys of each form, made up here: none of them was ever given out, and none stands in this file as a whole."""

from __future__ import annotations

import random
import string

__all__ = ["KEYS", "LOOKALIKES", "pem"]

_ALNUM = string.ascii_letters + string.digits
_random = random.Random(7)


def _some(count: int, characters: str = _ALNUM) -> str:
    return "".join(_random.choice(characters) for _ in range(count))


def pem(kind: str, header: str = "", end: str = "\n") -> str:
    """A block that looks like a private key of ``kind``."""
    lines = [_some(64, _ALNUM + "+/") for _ in range(6)] + [_some(30) + "=="]
    return end.join([f"-----BEGIN {kind}-----", *([header, ""] if header else []), *lines, f"-----END {kind}-----"])


KEYS = {
    "openai key": [f"sk-proj-{_some(74, _ALNUM + '-_')}", f"sk-svcacct-{_some(58)}", f"sk-admin-{_some(58)}"],
    "api key": [f"sk-{_some(48)}", f"sk-{_some(32, '0123456789abcdef')}"],
    "anthropic key": [f"sk-ant-api03-{_some(93, _ALNUM + '-_')}AA", f"sk-ant-admin01-{_some(93)}AA"],
    "openrouter key": [f"sk-or-v1-{_some(64, '0123456789abcdef')}"],
    "github token": [
        *(f"{head}_{_some(36)}" for head in ("ghp", "gho", "ghu", "ghs", "ghr")),
        f"github_pat_{_some(22)}_{_some(59)}",
    ],
    "aws access key id": [f"{head}{_some(16, string.ascii_uppercase + '234567')}" for head in ("AKIA", "ASIA")],
    "google key": [f"AIza{_some(35, _ALNUM + '-_')}"],
    "google oauth secret": [f"GOCSPX-{_some(28)}"],
    "slack token": [
        f"xoxb-{_some(12, '123')}-{_some(12, '123')}-{_some(24)}",
        f"xapp-1-A{_some(10)}-{_some(64)}",
        f"xoxe.xoxp-1-{_some(160)}",
    ],
    "hugging face token": [f"hf_{_some(34, string.ascii_letters)}"],
    "gitlab token": [f"glpat-{_some(20, _ALNUM + '-_')}", f"glpat-{_some(27)}.01.{_some(9)}"],
    "stripe key": [f"sk_live_{_some(24)}", f"rk_test_{_some(99)}"],
    "stripe webhook secret": [f"whsec_{_some(32)}"],
    "npm token": [f"npm_{_some(36)}"],
    "pypi token": [f"pypi-AgEIcHlwaS5vcmc{_some(140, _ALNUM + '-_')}"],
    "json web token": [f"eyJ{_some(33)}.eyJ{_some(80)}.{_some(43, _ALNUM + '-_')}"],
    "private key": [
        *(pem(kind) for kind in ("PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY")),
        pem("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF"),
        pem("PGP PRIVATE KEY BLOCK", "Version: GnuPG v2"),
        pem("EC PRIVATE KEY", end="\\n"),
        pem("PRIVATE KEY", end="\r\n"),
    ],
}

LOOKALIKES = [
    _some(40, "0123456789abcdef"),
    "123e4567-e89b-12d3-a456-426614174000",
    _some(500, _ALNUM + "+/"),
    "sha256:" + _some(64, "0123456789abcdef"),
    "task-" + _some(40),
    "risk-" + _some(40, "0123456789abcdef"),
    "sk-estimator-doc-link-and-a-long-tail",
    "sk-toggleable__label-arrow",
    "from sk_learn import sk_test_something",
    "hf_hub_download_of_a_model_with_a_long_name",
    "npm_config_registry_of_this_machine_here",
    "npm_" + _some(40),
    "AKIA" + _some(30, string.ascii_uppercase),
    "eyJ" + _some(200),
    "eyJhbGciOi.eyJub25l",
    "if line.startswith('-----BEGIN RSA PRIVATE KEY-----'):\n    raise ValueError(line)",
    "-----BEGIN CERTIFICATE-----\n" + _some(64) + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + _some(64) + "\n-----END PUBLIC KEY-----",
    "ghp_short",
    "glpat-",
]
