"""Examples for every command, shown at the end of its ``--help``. A test parses each of them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": ("taut demo", "taut run --workers 4 train.py", "taut show latest"),
    "run": (
        "taut run --workers 4 train.py --epochs 10",
        "taut run -n 4 --strategy sync --checkpoint-every 5m train.py",
        "taut run -n 9 --strategy adpsgd --topology torus --dashboard train.py",
    ),
    "resume": ("taut resume latest", "taut resume quiet-otter --workers 2"),
    "demo": ("taut demo",),
    "supervisor": (
        "taut supervisor --workers 3",
        "taut supervisor --workers 3 --announce /shared",
        "taut supervisor --recover quiet-otter",
        "taut supervisor --standby quiet-otter",
    ),
    "worker": (
        "taut worker --join tcp://10.0.0.7:40123 --token-file token train.py",
        "taut worker --rendezvous /shared train.py",
    ),
    "slurm": ("taut slurm --nodes 4 --workers-per-node 2 --time 2:00:00 train.py --epochs 10",),
    "dashboard": ("taut dashboard latest", "taut dashboard quiet-otter --listen 8080"),
    "drain": ("taut drain latest", "taut drain quiet-otter 3"),
    "steer": ("taut steer pause quiet-otter 3",),
    "steer pause": ("taut steer pause quiet-otter 3",),
    "steer resume": ("taut steer resume quiet-otter 3",),
    "steer tune": ("taut steer tune quiet-otter --lr-factor 0.5", "taut steer tune latest --slack 2^-6"),
    "steer checkpoint": ("taut steer checkpoint latest",),
    "token": ("taut token new quiet-otter --expires 2h",),
    "token new": ("taut token new quiet-otter --expires 2h",),
    "token keys": ("taut token keys keys-of-the-job",),
    "token list": ("taut token list quiet-otter",),
    "token revoke": ("taut token revoke quiet-otter guest",),
    "runs": ("taut runs", "taut runs --state failed,interrupted --since 2d", "taut runs --json"),
    "show": ("taut show latest", "taut show quiet-otter --json"),
    "top": ("taut top latest",),
    "plot": ("taut plot latest", "taut plot quiet-otter --output curves.svg"),
    "export": ("taut export latest --format parquet", "taut export quiet-otter --table metrics --output -"),
    "strategies": ("taut strategies",),
    "simulate": (
        "taut simulate --workers 8 digits",
        "taut simulate -n 16 --strategy gossip --topology torus --link 100mbit,1ms --fail 2@30s train.py",
        "taut simulate -n 1000 --timing-only --strategy sync --link 10gbit,50us resnet50",
    ),
    "compare": (
        "taut compare --strategies sync,ssp:3,async --workers 2,4 --seeds 3 train.py",
        "taut compare --simulate --strategies sync,gossip --link 100mbit,1ms train.py",
    ),
    "probe": ("taut probe train.py", "taut probe --listen --workers 3"),
    "advise": ("taut advise train.py", "taut advise --probe probe.json --workers 8 train.py"),
    "topology": ("taut topology torus --workers 12", "taut topology exponential -n 8 --draw shape.svg"),
    "pack": (
        "taut pack train.py -o job.taut --workers 4 -- --epochs 10",
        "taut pack train.py --executable -o job",
        "taut pack --no-source --key my-key train.py",
        "taut pack --new-key my-key",
    ),
    "serve": (
        "taut serve tiers.py:build --weights model.safetensors --tier device --views views.npy --up tcp://10.0.0.7:7000 "
        "--token-file token",
        "taut serve tiers.py:build --weights model.safetensors --tier edge --listen 0.0.0.0:7000 --keys keys",
    ),
    "data": ("taut data get mnist", "taut data list"),
    "data get": ("taut data get mnist", "taut data get cifar10 --to /shared/cifar10"),
    "data list": ("taut data list",),
    "codecs": ("taut codecs", "taut codecs topk:density=0.001", "taut codecs --only topk,int8 train.py"),
}


def examples(command: str) -> str:
    """Return the end of a command's help."""
    heading = "Example:" if len(EXAMPLES[command]) == 1 else "Examples:"
    return "\n".join([heading, *(f"  {line}" for line in EXAMPLES[command])])
