# SPDX-License-Identifier: Apache-2.0
"""Two hosts that are one: network namespaces with names and addresses of their own, and a link of a limited rate between them. Needs
root, ip and tc (iproute2), taskset and unshare (util-linux), and Open MPI."""
import shutil
import subprocess
import sys

NAMES = ("sluice-a", "sluice-b")
ADDRESSES = ("10.199.0.1", "10.199.0.2")
CORES = ("0", "1")  # of each


def sh(*command, check=True, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def missing():
    """Tools that are not here."""
    return [tool for tool in ("ip", "tc", "taskset", "unshare", "mpirun") if not shutil.which(tool)]


def remove():
    for name in NAMES:
        sh("ip", "netns", "del", name, check=False)


def connect(rate):
    """Two namespaces with a link of this rate, as tc writes it: a veth pair with a token bucket (tc tbf) at both ends."""
    remove()
    for name in NAMES:
        sh("ip", "netns", "add", name)
    sh("ip", "link", "add", "veth-a", "netns", NAMES[0], "type", "veth", "peer", "name", "veth-b", "netns", NAMES[1])
    for name, address, link in zip(NAMES, ADDRESSES, ("veth-a", "veth-b")):
        inside = ("ip", "netns", "exec", name)
        sh(*inside, "ip", "link", "set", "lo", "up")
        sh(*inside, "ip", "addr", "add", address + "/24", "dev", link)
        sh(*inside, "ip", "link", "set", link, "up")
        # Packets of the size that cards make of segments, so that the bucket is not what is measured.
        sh(*inside, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")


def mpirun(work, command, each=1):
    """The command line that runs `command` from the folder `work` as processes of both, so many of each, which share its core."""
    agent = work / "agent"  # mpirun's way to another host: "agent HOST COMMAND"
    agent.write_text(f"#!/bin/sh\nshift\nexec taskset -c {CORES[1]} ip netns exec {NAMES[1]} unshare --uts sh -c 'hostname {NAMES[1]}; "
                     "exec \"$@\"' sh sh -c \"$*\"\n")
    agent.chmod(0o755)
    hosts = ",".join(f"{address}:{each}" for address in ADDRESSES)
    script = f"hostname {NAMES[0]}; exec \"$@\""
    return ["taskset", "-c", CORES[0], "ip", "netns", "exec", NAMES[0], "unshare", "--uts", "sh", "-c", script, "sh",
            "mpirun", "--allow-run-as-root", "--host", hosts, "--map-by", "slot", "--bind-to", "none", "--mca", "plm_rsh_agent", str(agent),
            "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include", "10.199.0.0/24", "--mca", "oob_tcp_if_include", "10.199.0.0/24",
            "-np", str(2 * each), *command]
