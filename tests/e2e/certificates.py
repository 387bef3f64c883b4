"""Certificates made by the test itself, with the openssl program."""
import pathlib
import ssl
import subprocess

HOSTS = "DNS:localhost,IP:127.0.0.1"


def _openssl(*args):
    done = subprocess.run(["openssl", *[str(arg) for arg in args]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


class Authority:
    """Signs what is written to `folder`; its own certificate is `path`."""

    def __init__(self, folder, name):
        self.folder = pathlib.Path(folder)
        self.path, self.key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        self._make(self.path, self.key, name, "basicConstraints=critical,CA:TRUE")

    def issue(self, name, hosts=HOSTS):
        """(certificate, key), as NAME.pem and NAME.key; what was there is replaced."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        self._make(certificate, key, name, f"subjectAltName={hosts}", "-CA", self.path, "-CAkey", self.key)
        return certificate, key

    def trust(self, certificate=None, key=None):
        """What a Python client checks servers with, and shows them."""
        context = ssl.create_default_context(cafile=str(self.path))
        if certificate:
            context.load_cert_chain(certificate, key)
        return context

    @staticmethod
    def _make(certificate, key, name, extension, *signer):
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2, "-subj", f"/CN={name}",
                 "-addext", extension, *signer, "-keyout", key, "-out", certificate)


def certificate_of(port):
    """What a new connection gets to see."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)
