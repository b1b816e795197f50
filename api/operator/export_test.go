package operator

import (
	"time"

	"dibs/api/wire"
)

const PacketPostsMax = packetPostsMax

// WaitForPosts sets how long a request for packets waits for others.
func (s *Routes) WaitForPosts(d time.Duration) { s.postWait = d }

// RequestFields are the decoded fields, by the schema that describes them.
func RequestFields() map[string][]string {
	all := map[string][]string{}
	for schema, fields := range map[string][]wire.Field{
		"NewPackets": new(packetsBody).fields(), "NewPacket": wire.FieldsOf(new(packetBody)), "NewCampaign": new(campaignBody).fields(),
		"CampaignChange": new(changeBody).fields(),
	} {
		for _, f := range fields {
			all[schema] = append(all[schema], f.Name)
		}
	}
	return all
}
