package operator

import (
	"strconv"
	"strings"

	"dibs/models"
)

// etagOf is the ETag of a campaign's definition. It uses Version, which is
// never reused, even if MySQL is restored to an earlier time. Changes, the
// count for people, would be reused then.
func etagOf(c *models.Campaign) string { return `"` + strconv.FormatInt(c.Version, 10) + `"` }

// matching returns the versions in an If-Match header; nil is any. Unknown
// tags match no version. Weak tags count, because compressing proxies make
// tags weak, and a version identifies a definition byte for byte.
func matching(ifMatch string) []int64 {
	ifMatch = strings.TrimSpace(ifMatch)
	if ifMatch == "" || ifMatch == "*" {
		return nil
	}
	versions := []int64{}
	for tag := range strings.SplitSeq(ifMatch, ",") {
		text, begins := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
		text, ends := strings.CutSuffix(text, `"`)
		if version, err := strconv.ParseInt(text, 10, 64); begins && ends && err == nil {
			versions = append(versions, version)
		}
	}
	return versions
}
