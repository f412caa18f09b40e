package sysmem

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// group is a control group with a limit.
type group struct {
	limit int64
	used  int64 // bytes in use without pages of files
}

// unlimited is a lower bound of the number that version 1 writes for "no limit", which depends on the page size. It is
// larger than the memory of any machine.
const unlimited int64 = 1 << 60

// hierarchy holds the folders and file names of one version of control groups.
type hierarchy struct {
	point  string // folder of the group that is mounted, below the root
	folder string // folder of the process's group
	limits []string
	usage  string
	file   []string // fields of memory.stat whose sum is the bytes of pages of files
}

// groups returns the control groups that limit the memory of the process: its own group and the groups that contain
// it.
func (s System) groups() []group {
	var out []group
	for _, h := range s.hierarchies() {
		for dir := h.folder; ; dir = path.Dir(dir) {
			if g, ok := s.group(&h, dir); ok {
				out = append(out, g)
			}
			if dir == h.point || dir == "." {
				break
			}
		}
	}
	return out
}

// hierarchies returns the mounts of control groups with the memory controller, and the process's folder in each.
func (s System) hierarchies() []hierarchy {
	mounts, err := fs.ReadFile(s.root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	member, err := fs.ReadFile(s.root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var out []hierarchy
	for lines := bufio.NewScanner(bytes.NewReader(mounts)); lines.Scan(); {
		// format of a line: id parent major:minor root point options [fields] - type source superoptions
		before, after, ok := strings.Cut(lines.Text(), " - ")
		f, t := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(t) < 3 {
			continue
		}
		h := hierarchy{point: strings.Trim(f[4], "/")}
		var own string
		switch {
		case t[0] == "cgroup2":
			own, ok = memberOf(member, "")
			h.limits, h.usage = []string{"memory.max", "memory.high"}, "memory.current"
			h.file = []string{"active_file", "inactive_file"}
		case t[0] == "cgroup" && slices.Contains(strings.Split(t[2], ","), "memory"):
			own, ok = memberOf(member, "memory")
			h.limits, h.usage = []string{"memory.limit_in_bytes"}, "memory.usage_in_bytes"
			h.file = []string{"total_active_file", "total_inactive_file"}
		default:
			continue
		}
		if !ok {
			continue
		}
		// If the mount shows only a part of the hierarchy, such as a container's, names of groups are relative to this
		// part.
		below, inside := strings.CutPrefix(own, f[3])
		if !inside {
			below = ""
		}
		// The inner Join with a slash prevents ".." from leading above the mount.
		h.folder = path.Join(h.point, path.Join("/", below))
		out = append(out, h)
	}
	return out
}

// memberOf returns the process's group in the hierarchy of a controller; for version 2, controller is empty.
func memberOf(text []byte, controller string) (string, bool) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		f := strings.SplitN(lines.Text(), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], true
		}
	}
	return "", false
}

// group reads a group's limit and use, and reports whether it has a limit.
func (s System) group(h *hierarchy, dir string) (group, bool) {
	g := group{limit: unlimited}
	for _, name := range h.limits {
		if v, ok := s.number(path.Join(dir, name)); ok {
			g.limit = min(g.limit, v)
		}
	}
	if g.limit >= unlimited {
		return group{}, false
	}
	g.used, _ = s.number(path.Join(dir, h.usage))
	if text, err := fs.ReadFile(s.root, path.Join(dir, "memory.stat")); err == nil {
		for _, field := range h.file {
			g.used -= stat(text, field)
		}
		g.used = max(g.used, 0)
	}
	return g, true
}

// number reads a file with a number of bytes; for "max" it returns false.
func (s System) number(name string) (int64, bool) {
	text, err := fs.ReadFile(s.root, name)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return v, err == nil && v >= 0
}

// stat returns a field of memory.stat, in bytes; 0 if the field is missing.
func stat(text []byte, field string) int64 {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && name == field {
			v, err := strconv.ParseInt(value, 10, 64)
			if err != nil || v < 0 {
				return 0
			}
			return v
		}
	}
	return 0
}
