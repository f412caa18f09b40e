package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"sparrow/engine"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier"
	"sparrow/internal/kv/tier/resp"
	"sparrow/internal/sysmem"
	"sparrow/internal/unit"
)

// tierFlags configure the tiers of the prefix cache outside the device.
type tierFlags struct {
	hostCache, diskCache, diskSize, pageStore string
	tierWait                                  time.Duration
	keepEarly, pull                           bool // set by the server's role
	onHost, onDisk                            prefix.Listener
}

func (f *tierFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.hostCache, "host-cache", "",
		"host memory for cached pages that are evicted from the device, such as 64G; without it they are dropped")
	s.StringVar(&f.diskCache, "disk-cache", "",
		"folder for cached pages, which remain when the server stops; each server needs its own")
	s.StringVar(&f.diskSize, "disk-cache-size", "64G", "maximum bytes of files in that folder")
	s.StringVar(&f.pageStore, "page-store", "", "Redis or Valkey server in which several servers share cached pages: "+
		"redis://[user:password@]host[:port][/database][?ttl=24h], rediss:// with TLS")
	s.DurationVar(&f.tierWait, "tier-wait", engine.DefaultTierWait,
		"maximum time that a request waits for cached pages beyond the time to compute them")
}

// effects returns an error for flags that have no effect without a tier.
func (f *tierFlags) effects(given *pflag.FlagSet) error {
	there := f.hostCache != "" || f.diskCache != "" || f.pageStore != "" || f.pull
	return errors.Join(onlyWith(given, f.diskCache != "", "--disk-cache", "disk-cache-size"),
		onlyWith(given, there, "--host-cache, --disk-cache, --page-store or --role decode", "tier-wait"))
}

// tiers converts the flags to the options of the tiers.
func (f *tierFlags) tiers() (o tier.Options, err error) {
	if f.hostCache != "" {
		if o.HostBytes, err = parseBytes(f.hostCache); err != nil {
			return o, fmt.Errorf("--host-cache: %w", err)
		}
		if free := sysmem.Available(); free > 0 && o.HostBytes > free {
			return o, fmt.Errorf("--host-cache %s: only %s of memory are available; choose less", f.hostCache,
				unit.Bytes(free))
		}
	}
	if f.diskCache != "" {
		o.DiskDir = f.diskCache
		if o.DiskBytes, err = parseBytes(f.diskSize); err != nil {
			return o, fmt.Errorf("--disk-cache-size: %w", err)
		}
	}
	if f.pageStore != "" {
		if _, err := resp.ParseURL(f.pageStore); err != nil {
			return o, fmt.Errorf("--page-store: %w", err)
		}
		o.StoreURL = f.pageStore
	}
	if f.tierWait < 0 {
		return o, errors.New("--tier-wait is negative; want a time such as 500ms, or 0 for the default")
	}
	o.Wait, o.KeepEarly, o.Pull = f.tierWait, f.keepEarly, f.pull
	o.OnHost, o.OnDisk = f.onHost, f.onDisk
	return o, nil
}
