package operator

import (
	"strconv"
	"strings"

	"dibs/models"
)

// etagOf is the entity tag of a campaign's definition. It is made of
// Version, which no other definition ever had, even when MySQL was
// restored to an earlier time; the count of changes that people read would
// be used twice then.
func etagOf(c *models.Campaign) string { return `"` + strconv.FormatInt(c.Version, 10) + `"` }

// matching are the versions that an If-Match header names; nil is any. A
// tag that is none of ours names no version. Proxies that compress make
// tags weak, so a weak one counts: a version is a definition byte for
// byte.
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
