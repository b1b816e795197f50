package operator

const PacketPostsMax = packetPostsMax

// OperatorFields are the fields that are decoded, by the schema that describes them.
func OperatorFields() map[string][]string {
	all := map[string][]string{"PacketsBody": packetsFields, "PacketBody": packetFields}
	for _, f := range (&campaignBody{}).fields() {
		all["CampaignBody"] = append(all["CampaignBody"], f.name)
	}
	for _, f := range (&changeBody{}).fields() {
		all["ChangeBody"] = append(all["ChangeBody"], f.name)
	}
	return all
}
