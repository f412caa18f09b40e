package sysmem

import (
	"fmt"
	"testing"
	"testing/fstest"
)

const mib = int64(1) << 20

// machine is the /proc/meminfo of a machine with 16 GiB, of which 12 GiB are available.
var machine = file(fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", 16<<20, 12<<20))

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func bytesOf(n int64) *fstest.MapFile { return file(fmt.Sprintf("%d\n", n)) }

// These are paths of files that every process can read.
const meminfo, mounts, member = "proc/meminfo", "proc/self/mountinfo", "proc/self/cgroup"

// These are lines of /proc/self/mountinfo.
const (
	otherMount = "20 1 0:5 / /proc rw,nosuid - proc proc rw\n"
	mount2     = "25 1 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountCPU   = "31 1 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	mount1     = "32 1 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	shown1     = "32 1 0:32 /docker/a1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)

func TestControlGroups(t *testing.T) {
	total, free := 16<<30, 12<<30
	for name, c := range map[string]struct {
		files       fstest.MapFS
		total, free int64
	}{
		"no control groups": {fstest.MapFS{meminfo: machine}, int64(total), int64(free)},
		"version 2, no limit": {fstest.MapFS{
			meminfo: machine, mounts: file(otherMount + mount2), member: file("0::/box\n"),
			"sys/fs/cgroup/box/memory.max": file("max\n"), "sys/fs/cgroup/box/memory.current": bytesOf(9 << 30),
		}, int64(total), int64(free)},
		"version 2, a limit": {fstest.MapFS{
			meminfo: machine, mounts: file(otherMount + mount2), member: file("0::/box\n"),
			"sys/fs/cgroup/box/memory.max": bytesOf(300 * mib), "sys/fs/cgroup/box/memory.current": bytesOf(100 * mib),
			"sys/fs/cgroup/box/memory.stat": file(fmt.Sprintf("anon %d\nfile %d\nactive_file %d\ninactive_file %d\n",
				20*mib, 80*mib, 30*mib, 50*mib)),
		}, 300 * mib, 280 * mib},
		"version 2, in a namespace of its own": {fstest.MapFS{
			meminfo: machine, mounts: file(mount2), member: file("0::/\n"),
			"sys/fs/cgroup/memory.max": bytesOf(300 * mib), "sys/fs/cgroup/memory.current": bytesOf(100 * mib),
		}, 300 * mib, 200 * mib},
		"version 2, throttled below its limit": {fstest.MapFS{
			meminfo: machine, mounts: file(mount2), member: file("0::/\n"),
			"sys/fs/cgroup/memory.max": bytesOf(300 * mib), "sys/fs/cgroup/memory.high": bytesOf(250 * mib),
			"sys/fs/cgroup/memory.current": bytesOf(100 * mib),
		}, 250 * mib, 150 * mib},
		"version 2, the group around it is smaller": {fstest.MapFS{
			meminfo: machine, mounts: file(mount2), member: file("0::/pod/box\n"),
			"sys/fs/cgroup/pod/memory.max": bytesOf(300 * mib), "sys/fs/cgroup/pod/memory.current": bytesOf(250 * mib),
			"sys/fs/cgroup/pod/box/memory.max":     bytesOf(1 << 30),
			"sys/fs/cgroup/pod/box/memory.current": bytesOf(10 * mib),
		}, 300 * mib, 50 * mib},
		"version 2, a limit on the inner group alone": {fstest.MapFS{
			meminfo: machine, mounts: file(mount2), member: file("0::/pod/box\n"),
			"sys/fs/cgroup/pod/memory.max": file("max\n"), "sys/fs/cgroup/pod/box/memory.max": bytesOf(300 * mib),
		}, 300 * mib, 300 * mib},
		"version 2, the machine is smaller than the limit": {fstest.MapFS{
			meminfo: machine, mounts: file(mount2), member: file("0::/box\n"),
			"sys/fs/cgroup/box/memory.max": bytesOf(64 << 30),
		}, int64(total), int64(free)},
		"version 2, full": {fstest.MapFS{
			meminfo: machine, mounts: file(mount2), member: file("0::/box\n"),
			"sys/fs/cgroup/box/memory.max":     bytesOf(300 * mib),
			"sys/fs/cgroup/box/memory.current": bytesOf(300 * mib),
		}, 300 * mib, 1},
		"version 1, a limit": {fstest.MapFS{
			meminfo: machine, mounts: file(mountCPU + mount1),
			member: file("4:cpu,cpuacct:/other\n3:memory:/box\n0::/\n"),
			"sys/fs/cgroup/memory/box/memory.limit_in_bytes": bytesOf(300 * mib),
			"sys/fs/cgroup/memory/box/memory.usage_in_bytes": bytesOf(120 * mib),
			"sys/fs/cgroup/memory/box/memory.stat": file(fmt.Sprintf(
				"inactive_file 1\ntotal_active_file %d\ntotal_inactive_file %d\n", 20*mib, 40*mib)),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": bytesOf(9223372036854771712),
		}, 300 * mib, 240 * mib},
		"version 1, no limit": {fstest.MapFS{
			meminfo: machine, mounts: file(mount1), member: file("3:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": bytesOf(9223372036854771712),
			"sys/fs/cgroup/memory/memory.usage_in_bytes": bytesOf(11 << 30),
		}, int64(total), int64(free)},
		"version 1, the mount shows the container alone": {fstest.MapFS{
			meminfo: machine, mounts: file(shown1), member: file("3:memory:/docker/a1\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": bytesOf(300 * mib),
		}, 300 * mib, 300 * mib},
		"version 1 beside version 2": {fstest.MapFS{
			meminfo: machine, member: file("3:memory:/box\n0::/unit\n"),
			mounts: file(mount1 + "41 1 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"),
			"sys/fs/cgroup/memory/box/memory.limit_in_bytes": bytesOf(300 * mib),
		}, 300 * mib, 300 * mib},
		"a name that leads out of the mount": {fstest.MapFS{
			meminfo: machine, mounts: file(mount2), member: file("0::/../../proc\n"),
			"sys/fs/cgroup/memory.max": bytesOf(300 * mib), "proc/memory.max": bytesOf(1),
		}, 300 * mib, 300 * mib},
		"files that are missing": {fstest.MapFS{
			meminfo: machine, mounts: file(mount2 + mount1), member: file("0::/gone\n"),
		}, int64(total), int64(free)},
		"files that hold something else": {fstest.MapFS{
			meminfo: machine, mounts: file("no mount\n" + mount2), member: file("x\n0::/box\n"),
			"sys/fs/cgroup/box/memory.max": file("many\n"), "sys/fs/cgroup/memory.max": file("-5\n"),
		}, int64(total), int64(free)},
		"a limit where the machine does not say": {fstest.MapFS{
			mounts: file(mount2), member: file("0::/\n"),
			"sys/fs/cgroup/memory.max": bytesOf(300 * mib), "sys/fs/cgroup/memory.current": bytesOf(100 * mib),
		}, 300 * mib, 200 * mib},
		"nothing": {fstest.MapFS{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := At(c.files)
			if got := s.Total(); got != c.total {
				t.Errorf("the total is %d, want %d", got, c.total)
			}
			if got := s.Available(); got != c.free {
				t.Errorf("%d are available, want %d", got, c.free)
			}
		})
	}
}

// FuzzFiles checks that no contents of the system's files give a negative amount of memory.
func FuzzFiles(f *testing.F) {
	f.Add("MemTotal: 5 kB\nMemAvailable: -1 kB", otherMount+mount2+mount1, "0::/box\n4:memory:/../x\n", "max\n",
		"file 9\n")
	f.Add("MemAvailable:", shown1, "4:cpu,memory:/docker/a1\n", "99999999999999999999", "inactive_file -1")
	f.Fuzz(func(t *testing.T, mem, mountinfo, cgroup, number, stat string) {
		files := fstest.MapFS{meminfo: file(mem), mounts: file(mountinfo), member: file(cgroup)}
		for _, dir := range []string{"sys/fs/cgroup/box/", "sys/fs/cgroup/memory/", "sys/fs/cgroup/"} {
			for _, name := range []string{"memory.max", "memory.current", "memory.limit_in_bytes",
				"memory.usage_in_bytes"} {
				files[dir+name] = file(number)
			}
			files[dir+"memory.stat"] = file(stat)
		}
		s := At(files)
		if total, free := s.Total(), s.Available(); total < 0 || free < 0 {
			t.Fatalf("%d bytes, %d free", total, free)
		}
	})
}
