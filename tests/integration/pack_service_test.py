"""Images -> pack -> daemon -> client -> pack -> images: what comes back is what went in.

Usage: pack_service_test.py FOREBAYD FOREBAY
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

import served_daemon

ROWS, COLUMNS, FRAMES, CLASSES = 48, 64, 21, ("cats", "dogs")


def frame(label, number):
    return bytes((3 * x + 5 * y + 7 * number + (x * y * number) % 3 + 90 * label) & 0xFF
                 for y in range(ROWS) for x in range(COLUMNS))


def write_images(folder):
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(FRAMES):
            header = b"P5\n%d %d\n255\n" % (COLUMNS, ROWS)
            (folder / name / f"{number:03}.pgm").write_bytes(header + frame(label, number))


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def status(forebay, address):
    return json.loads(run(forebay, "--address", address, "--json", "status").splitlines()[-1])


def check_images(folder):
    files = sorted((folder / "image").iterdir())
    assert len(files) == len(CLASSES) * FRAMES, files
    for index, path in enumerate(files):
        wanted = frame(index // FRAMES, index % FRAMES)
        assert path.read_bytes().endswith(b"255\n" + wanted), f"{path} is not frame {index}"


def check_labels(path):
    labels = path.read_bytes()[-4 * len(CLASSES) * FRAMES:]
    values = struct.unpack(f"<{len(CLASSES) * FRAMES}i", labels)
    assert values == tuple(index // FRAMES for index in range(len(values))), values


def main():
    forebayd, forebay = sys.argv[1:]
    os.environ["FOREBAY_JOB_ID"] = "t"
    with tempfile.TemporaryDirectory(prefix="fb.") as name:
        folder = pathlib.Path(name)
        write_images(folder / "images")
        (folder / "gfs").mkdir()
        run(forebay, "pack", "--images", folder / "images", folder / "gfs" / "shapes.fbp")
        daemon = served_daemon.serve(forebayd, folder, 'name = "shapes"')
        try:
            address = f"unix:{folder}/s"
            run(forebay, "--address", address, "stage", "shapes")
            run(forebay, "--address", address, "pack", "shapes", folder / "again.fbp")
            after = status(forebay, address)
            run(forebay, "unpack", folder / "again.fbp", "--to", folder / "out", "--images")
            check_images(folder / "out")
            check_labels(folder / "out" / "label.npy")
            samples = len(CLASSES) * FRAMES
            raw_bytes = samples * (ROWS * COLUMNS + 4)
            assert after["datasets"][0]["format"] == "pack", after
            # Once each: an order that is that of the file decodes no chunk twice.
            assert after["decode"]["decoded_bytes"] == raw_bytes, after["decode"]
            assert after["gfs"]["bytes"] < raw_bytes / 2, after["gfs"]
            run(forebay, "--address", address, "verify", "shapes")
        finally:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(timeout=60) == 0


if __name__ == "__main__":
    main()
