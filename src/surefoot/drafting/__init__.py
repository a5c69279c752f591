"""Where drafts come from. A drafter may guess wrong; it can't change the text."""
