package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/internal/batch"
	"sparrow/internal/unit"
	"sparrow/server"
)

// batchFlags configure the storage of files and batches.
type batchFlags struct {
	batchDir    string
	batchBudget string
	budget      int64
}

func (f *batchFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.batchDir, "batch-dir", "", "folder for files and batches (/v1/files, /v1/batches, "+
		"/v1/messages/batches), used by this server only; without it they are disabled")
	s.StringVar(&f.batchBudget, "batch-budget", "4G", "maximum bytes of --batch-dir, such as 512M")
}

// check validates the flags and parses the budget, the maximum bytes of stored batches.
func (f *batchFlags) check(s *pflag.FlagSet) (err error) {
	if s.Changed("batch-budget") && f.batchDir == "" {
		return errors.New("--batch-budget limits the folder of batches; add --batch-dir FOLDER, or omit it")
	}
	if f.budget, err = parseBytes(f.batchBudget); err != nil {
		return fmt.Errorf("--batch-budget: %w", err)
	}
	if f.budget < 1<<20 {
		return fmt.Errorf("--batch-budget is %s, want at least 1M", f.batchBudget)
	}
	return nil
}

// open opens the folder; it returns nil if none is configured. Batches may use half of the maximum number of running
// sequences.
func (f *batchFlags) open(i sparrow.Info, log *slog.Logger) (*batch.Store, error) {
	if f.batchDir == "" {
		return nil, nil
	}
	s, err := batch.Open(batch.Options{Dir: f.batchDir, Budget: f.budget, Workers: max(i.MaxRunning/2, 1),
		Line: server.DefaultMaxBodyBytes, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--batch-dir: %w", err)
	}
	return s, nil
}

func (f *batchFlags) announce(b *strings.Builder, s *batch.Store) {
	if s == nil {
		return
	}
	stats := s.Stats()
	fmt.Fprintf(b, "batches  %s: %s of %s; %d lines to run\n", f.batchDir, unit.Bytes(stats.Used),
		unit.Bytes(stats.Budget), stats.Left)
}
