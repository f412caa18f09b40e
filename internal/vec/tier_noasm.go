//go:build purego || !(amd64 || arm64)

package vec

func assemblyTiers() ([]*Tier, []Absent) { return nil, nil }
