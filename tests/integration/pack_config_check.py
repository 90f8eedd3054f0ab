#!/usr/bin/env python3
"""`forebay pack --config`: a private daemon reads a raw data set, whatever else there is.

    pack_config_check.py FOREBAY FOREBAYD

Packs through a daemon that the command starts, unpacks and compares. $FOREBAY_ADDRESS names a
socket that nobody answers at: it is not asked.
"""

import json
import os
import subprocess
import sys
import tempfile

ROWS, COLUMNS, RECORDS = 24, 32, 100


def run(words, environment, code=0):
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120,
                          check=False)
    if done.returncode != code:
        raise SystemExit("%s: exit code %d\n%s%s" % (words, done.returncode, done.stdout,
                                                      done.stderr))
    return done


def main(forebay, forebayd):
    with tempfile.TemporaryDirectory() as folder:
        data = bytes((i // 7 * 3 + i % 5) & 0xFF for i in range(RECORDS * ROWS * COLUMNS))
        os.mkdir(os.path.join(folder, "set"))
        with open(os.path.join(folder, "set", "records.bin"), "wb") as file:
            file.write(data)
        config = os.path.join(folder, "forebay.toml")
        with open(config, "w", encoding="ascii") as file:
            file.write('[tier.ram]\ncapacity = "64MiB"\n[slots]\ncapacity = "32MiB"\n'
                       '[[dataset]]\nname = "records"\npath = "%s/set"\nformat = "raw"\n'
                       'files = ["value=records.bin"]\nshape = [%d, %d]\n'
                       % (folder, ROWS, COLUMNS))
        environment = dict(os.environ, XDG_RUNTIME_DIR=folder,
                           FOREBAY_ADDRESS="unix:%s/nobody.sock" % folder,
                           PATH=os.path.dirname(forebayd) + os.pathsep + os.environ["PATH"])
        pack = os.path.join(folder, "out.fbp")
        done = run([forebay, "pack", "--config", config, "records", pack, "--json"], environment)
        last = json.loads(done.stdout.splitlines()[-1])
        if (last["event"], last["samples"]) != ("done", RECORDS):
            raise SystemExit("not packed: %s" % last)
        run([forebay, "verify", pack], environment)
        run([forebay, "unpack", pack, "--to", os.path.join(folder, "arrays")], environment)
        with open(os.path.join(folder, "arrays", "value.npy"), "rb") as file:
            array = file.read()
        if not array.endswith(data) or len(array) - len(data) > 256:
            raise SystemExit("the array is not the data set")
        # Without --config the address is asked, where nobody is.
        run([forebay, "--timeout-ms", "100", "pack", "records", pack + "2"], environment, code=4)
        run([forebay, "pack", "--config", config + "none", "records", pack + "2"], environment,
            code=2)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
