"""Horovod with gloo, without its launcher: host 1 holds the rendezvous, as ``horovodrun`` would."""

import os
import time

from task import Participant, parser

args = parser(__doc__).parse_args()
me = Participant(args)
port_file = args.out / "rendezvous"
if args.rank == 0:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    hosts = parse_hosts(",".join(f"{args.head.rpartition('.')[0]}.{rank + 1}:1" for rank in range(args.world)))
    server = RendezvousServer()
    port = server.start()
    server.init(get_host_assignments(hosts, args.world))
    part = args.out / "rendezvous.part"
    part.write_text(str(port))
    part.rename(port_file)
while not port_file.exists():
    time.sleep(0.05)
os.environ |= {
    "HOROVOD_RANK": str(args.rank),
    "HOROVOD_SIZE": str(args.world),
    "HOROVOD_LOCAL_RANK": "0",
    "HOROVOD_LOCAL_SIZE": "1",
    "HOROVOD_CROSS_RANK": str(args.rank),
    "HOROVOD_CROSS_SIZE": str(args.world),
    "HOROVOD_HOSTNAME": args.address,
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": args.head,
    "HOROVOD_GLOO_RENDEZVOUS_PORT": port_file.read_text(),
    "HOROVOD_GLOO_IFACE": "eth0",
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
}
import horovod.torch as hvd  # noqa: E402  (it reads the environment)

hvd.init()
optimizer = hvd.DistributedOptimizer(me.optimizer(), named_parameters=me.model.named_parameters())
for batch in me.batches():
    me.loss(batch).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    me.stepped()
