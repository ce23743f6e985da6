#!/usr/bin/env python3
"""Runs packetdrill's public TCP scripts against the Linux kernel and against the TCP engine.

Called by scripts/packetdrill, which builds both. Each run has a network and mount namespace of its own, which is
gone when its process is.
"""

import argparse
import concurrent.futures
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile

# A run that takes longer has hung. The engine's clock is virtual: its runs take milliseconds.
RUN_SECONDS_MAX = {'kernel': 90, 'engine': 5}
# The kernel's clock is real, and a busy machine makes a run late: one that failed is run again, alone.
KERNEL_TRIES = 2

V4 = dict(local='192.168.0.1', remote='192.0.2.1', gateway='192.168.0.1', prefix=16, mtu=1500)
V6 = dict(local='fd3d:0a0b:17d6::1', remote='fd3d:fa7b:d17d::1', gateway='fd3d:0a0b:17d6:8888::1', prefix=48,
          mtu=1520)
# What packetdrill's own runner (run_all.py) gives each variant.
VARIANTS = {
    'ipv4': (V4, ['--ip_version=ipv4', '--netmask_ip=255.255.0.0', '-D', 'TFO_COOKIE=3021b9d889017eeb',
                  '-D', 'CODE=host_unreachable', '-D', 'CMSG_LEVEL_IP=SOL_IP',
                  '-D', 'CMSG_TYPE_RECVERR=IP_RECVERR']),
    'ipv4-mapped-v6': (V4, ['--ip_version=ipv4-mapped-ipv6', '--netmask_ip=255.255.0.0',
                            '-D', 'TFO_COOKIE=3021b9d889017eeb', '-D', 'CODE=host_unreachable',
                            '-D', 'CMSG_LEVEL_IP=SOL_IPV6', '-D', 'CMSG_TYPE_RECVERR=IPV6_RECVERR']),
    'ipv6': (V6, ['--ip_version=ipv6', '--mtu=1520', '-D', 'TFO_COOKIE=c1d1e9742a47a9bc',
                  '-D', 'CMSG_LEVEL_IP=SOL_IPV6', '-D', 'CMSG_TYPE_RECVERR=IPV6_RECVERR']),
}

# Inside the namespaces: /sys shows this namespace's devices, and packetdrill opens its TUN device (the kernel's
# runs), or finds one of the name that scripts have in their commands (the engine's).
SETUP = 'mount -t sysfs sysfs /sys && ip link set lo up'
DEVICE = ('ip link add tun0 mtu {mtu} type veth peer name tun0p && ip link set tun0p up && ip link set tun0 up && '
          'ip addr add {local}/{prefix} dev tun0 {nodad} && ip route replace {remote} dev tun0')


def variants_of(path):
    """The runs of a script, as packetdrill's own runner has them."""
    out = []
    if not path.endswith('v6.pkt'):
        out += ['ipv4', 'ipv4-mapped-v6']
    if not path.endswith('v4.pkt'):
        out.append('ipv6')
    return out


class Runner:
    def __init__(self, args):
        self.args = args

    def command(self, stack, path, variant, verbose=False):
        net, options = VARIANTS[variant]
        tool = [self.args.tool, '--send_omit_free', *options]
        for name in ('local', 'remote', 'gateway'):
            tool.append('--%s_ip=%s' % (name, net[name]))
        setup = SETUP
        if stack == 'engine':
            nodad = 'nodad' if ':' in net['local'] else ''
            setup += ' && ' + DEVICE.format(nodad=nodad, **net)
            tool += ['--so_filename=' + self.args.library,
                     '--so_flags=local=%s,remote=%s' % (net['local'], net['remote'])]
        if verbose:
            tool.append('-v')
        tool.append(os.path.basename(path))
        preload = 'LD_PRELOAD=%s ' % shlex.quote(self.args.library) if stack == 'engine' else ''
        return ['unshare', '--net', '--mount', 'sh', '-c',
                # Nobody outlives its time, whatever becomes of this program: the tool runs with a real-time priority.
                setup + ' && exec timeout -s KILL %d env ' % RUN_SECONDS_MAX[stack] + preload
                + ' '.join(shlex.quote(a) for a in tool)]

    def run(self, stack, path, variant, verbose=False):
        """Returns whether it passed, and its output."""
        with tempfile.TemporaryFile(mode='w+', errors='replace') as out:
            process = subprocess.Popen(self.command(stack, path, variant, verbose), stdout=out,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       cwd=os.path.dirname(path), start_new_session=True)
            late = False
            try:
                code = process.wait(RUN_SECONDS_MAX[stack])
            except subprocess.TimeoutExpired:
                late = True
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            out.seek(0)
            text = out.read()
        if late:
            text += 'no end within %d s\n' % RUN_SECONDS_MAX[stack]
        return code == 0, text

    def run_all(self, stack, runs):
        """All runs on one stack; returns {(path, variant): (passed, output)}."""
        results = {}
        workers = self.args.parallel if stack == 'engine' else max(self.args.parallel // 2, 1)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            futures = {pool.submit(self.run, stack, *r): r for r in runs}
            for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
                results[futures[future]] = future.result()
                if sys.stderr.isatty():
                    print('\r%s: %d of %d' % (stack, done, len(runs)), end='', file=sys.stderr)
        if sys.stderr.isatty():
            print(file=sys.stderr)
        if stack == 'kernel':
            for run in [r for r in runs if not results[r][0]]:
                for _ in range(KERNEL_TRIES - 1):
                    results[run] = self.run(stack, *run)
                    if results[run][0]:
                        break
        return results


def find_scripts(root, filters):
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.join(folder, n) for n in names if n.endswith('.pkt')]
    return [f for f in sorted(found) if not filters or any(w in os.path.relpath(f, root) for w in filters)]


def table(rows):
    head = ('folder', 'scripts', 'runs', 'kernel', 'engine')
    lines = [head] + [tuple(str(r[k]) for k in head) for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = [line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:])]
        print('  '.join(cells))


def summary(root, scripts, results, stacks):
    folders = {}
    for path in scripts:
        folders.setdefault(os.path.dirname(os.path.relpath(path, root)), []).append(path)

    def count(paths, stack):
        if stack not in stacks:
            return '-'
        return sum(results[stack][(p, v)][0] for p in paths for v in variants_of(p))

    rows = []
    for folder, paths in list(sorted(folders.items())) + [('all', scripts)]:
        rows.append(dict(folder=folder, scripts=len(paths), runs=sum(len(variants_of(p)) for p in paths),
                         kernel=count(paths, 'kernel'), engine=count(paths, 'engine')))
    return rows


def main():
    parser = argparse.ArgumentParser(prog='scripts/packetdrill')
    parser.add_argument('filters', nargs='*', metavar='FILTER', help='part of a script\'s path')
    parser.add_argument('--json', action='store_true', help='results as JSON on standard output')
    parser.add_argument('--show', metavar='FILE', help='what one script prints on the engine, and nothing else')
    parser.add_argument('--stack', choices=['both', 'kernel', 'engine'], default='both')
    parser.add_argument('--failures', action='store_true', help='each failed run and its first line, too')
    parser.add_argument('--parallel', type=int, default=2 * (os.cpu_count() or 1), metavar='N')
    # From scripts/packetdrill.
    parser.add_argument('--root', required=True, help=argparse.SUPPRESS)
    parser.add_argument('--tool', required=True, help=argparse.SUPPRESS)
    parser.add_argument('--library', required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    runner = Runner(args)

    if args.show:
        path = os.path.abspath(args.show)
        if not os.path.exists(path):
            path = os.path.join(args.root, args.show)
        stacks = ['engine'] if args.stack == 'both' else [args.stack]
        ok = True
        for variant in variants_of(path):
            for stack in stacks:
                passed, text = runner.run(stack, path, variant, verbose=True)
                ok &= passed
                print('%s: %s (%s): %s' % (os.path.relpath(path, args.root), stack, variant,
                                           'passed' if passed else 'failed'))
                print(text)
        return 0 if ok else 1

    scripts = find_scripts(args.root, args.filters)
    if not scripts:
        print('no script has %s in its path' % ' or '.join(args.filters), file=sys.stderr)
        return 2
    runs = [(p, v) for p in scripts for v in variants_of(p)]
    stacks = ['kernel', 'engine'] if args.stack == 'both' else [args.stack]
    results = {stack: runner.run_all(stack, runs) for stack in stacks}
    rows = summary(args.root, scripts, results, stacks)
    if args.json:
        each = [dict(script=os.path.relpath(p, args.root), variant=v,
                     **{s: dict(passed=results[s][(p, v)][0], output=results[s][(p, v)][1]) for s in stacks})
                for p, v in runs]
        json.dump(dict(kernel=os.uname().release, folders=rows, runs=each), sys.stdout, indent=1)
        print()
    else:
        table(rows)
        if args.failures:
            for stack in stacks:
                for path, variant in runs:
                    passed, text = results[stack][(path, variant)]
                    if not passed:
                        first = next((l for l in text.splitlines() if l.strip()), 'no output')
                        print('%s: %s (%s): %s' % (stack, os.path.relpath(path, args.root), variant, first))
    return 0


if __name__ == '__main__':
    sys.exit(main())
