"""A sub-agent for the tests: does what its prompt says."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

told = json.load(sys.stdin)
prompt, _, rest = told["prompt"].partition(" ")
print("reading the prompt", flush=True)
if prompt == "say":
    print(json.dumps({"said": rest, "model": told["model"], "system": told["system_prompt"],
                      "task": os.environ["OUTLAST_TASK_ID"] == told["task_id"],
                      "mood": os.environ.get("MOOD"), "folder": Path.cwd().name}))  # fmt: skip
elif prompt == "hang":
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(rest).write_text(f"{os.getpid()} {child.pid}")
    signal.pause()
elif prompt in ("leave", "escape"):  # and what it leaves behind holds its output open
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"],
        start_new_session=prompt == "escape",
    )
    Path(rest).write_text(f"{os.getpid()} {child.pid}")
    print('{"said": "done"}')
    if prompt == "escape":
        signal.pause()
elif prompt == "flood":
    Path(rest).write_text(f"{os.getpid()}")
    while True:
        print("x" * 65_536)
elif prompt == "complain":
    for _ in range(200):
        os.write(2, b"e" * 65_536)
    sys.exit("\nmy last word")
elif prompt == "nest":
    print("[" * 100_000)
elif prompt == "shut":  # its output, and lives on
    os.close(1)
    sys.stdin.close()
    Path(rest).write_text("after its last word")
    os._exit(0)
elif prompt == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
elif prompt == "once":  # crashes the first time it is asked
    try:
        Path(rest).touch(exist_ok=False)
    except FileExistsError:
        print('{"said": "better now"}')
    else:
        os.abort()
elif prompt == "mistake":
    compile("def broken(:", "agent_code.py", "exec")
elif prompt == "refused":
    sys.exit("HTTP 429: rate limit reached for this model")
elif prompt == "unplugged":
    sys.exit("redis.exceptions.ConnectionError: Connection refused")
elif prompt == "ends":
    sys.exit(rest)
elif prompt == "eat":
    eaten = bytearray(8 * 1024**3)
