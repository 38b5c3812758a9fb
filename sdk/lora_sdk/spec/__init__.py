"""Speculative decoding: proposers, draft trees and verification in the generation loop."""
