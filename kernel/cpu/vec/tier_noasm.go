//go:build purego || !amd64

package vec

func assemblyTiers() ([]*Tier, []Absent) { return nil, nil }
