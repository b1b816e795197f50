package bench_test

import "testing"

func benchBooks(b *testing.B, s *sheet)       {}
func benchAllocations(b *testing.B, s *sheet) {}
