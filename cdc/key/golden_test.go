package key_test

// What streams and indexes hold by now. A change needs a new FoldVersion.
const (
	goldenVersion     = 0x31c50a985c00f924
	goldenEverything  = "0059ad1bbfbcb24ede19a8a28f3ecdec"
	goldenSchema      = "a34c857c03f0a39ceb4a698b2ce04822"
	goldenTable       = "e3430c2ed3c5b1c1ff5f57467421129a"
	goldenAnyRow      = "77eb684c1771b339544d244ee631c313"
	goldenRow         = "495c6940c8be8cd08d50835d3c03c182"
	goldenGroupColumn = "bab2b93abfaa6ff91476edbd774cd9ab"
	goldenGroupValue  = "bb608927d5ffae338627e6b4c6a37291"
)
