"""TIFA's answerers: `vqa` is what they share and ViLT; BLIP, BLIP-2 and GIT have a file each."""
