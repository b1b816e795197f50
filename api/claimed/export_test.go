package claimed

import "time"

// KeepInMemory sets how many unsynced claims are kept in memory, and for how long without a look-up.
func (s *Routes) KeepInMemory(claims int, idle time.Duration) {
	s.unsynced.most, s.unsynced.idle = claims, idle
}

// WaitForRows sets how long a redeem or a release waits for a claim's row.
func (s *Routes) WaitForRows(d time.Duration) { s.resolveWait = d }
